"""Who may do what and how much of it: access rules, quotas, and lines that say what was done."""
