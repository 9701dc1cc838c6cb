"""The pages say what is: generated ones are current, links lead somewhere, named files exist, the sample is right."""

import importlib.util
import re
from pathlib import Path

import pytest

from tierd.config.load import Options, load
from tierd.web.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "storage").glob("*.md"),
    *(ROOT / "remote").glob("*.md"),
]
LINK = re.compile(r"\]\(([^)#:]+)\)")
SOURCE = re.compile(
    r"(?<![\w/.-])((?:tierd|storage|remote|config|tests|docs|systemd|bench)/[\w/.-]+\.(?:py|md|toml|service))\b"
)


def test_generated_pages_are_current() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    for path, text in generate.pages().items():
        assert path.read_text() == text, f"{path.name} is not current: make docs"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text()
    missing = [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    missing += [name for name in SOURCE.findall(text) if not (ROOT / name).exists()]
    assert not missing


def test_pages_that_the_code_names_have_that_section() -> None:
    named = re.compile(r'\b([A-Z]+|[a-z]+/[\w/]+)\.md\b(?:,? \(?"([^"\n]+)")?')
    wrong = []
    for folder in ("tierd", "storage", "remote", "config", "tests", "bench"):
        for source in (ROOT / folder).rglob("*.py"):
            for name, section in named.findall(source.read_text()):
                pages = [page for page in [*PAGES, *ROOT.glob("tests/golden/*.md")] if page.match(f"{name}.md")]
                headings = [line for page in pages for line in page.read_text().splitlines() if line.startswith("#")]
                if not any(section in heading for heading in headings):
                    wrong.append(f"{source.relative_to(ROOT)}: {name}.md {section}")
    assert not wrong


def test_every_metric_of_the_list_is_made_somewhere() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "tierd").rglob("*.py"))
    missing = [
        rule.name
        for rule in METRICS
        if not re.search(rf'(Sample\(|\()\s*"{rule.name}",', sources.replace("MetricRule(", ""))
    ]
    assert not missing


def test_the_sample_file_is_right() -> None:
    settings = load(Options(config=ROOT / "docs" / "tierd.toml"), need_data=True)
    assert settings.topic_defaults.resolve("clicks").retention_ms == 90 * 86_400_000
