import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** Reads untransformed segments in the directory `bucket`, under the keys of Aiven's plugin; stores nothing. */
public class BucketReader implements RemoteStorageManager {
    private static final Map<IndexType, String> NAMES = Map.of(
        IndexType.OFFSET, "offset",
        IndexType.TIMESTAMP, "timestamp",
        IndexType.PRODUCER_SNAPSHOT, "producerSnapshot",
        IndexType.LEADER_EPOCH, "leaderEpoch",
        IndexType.TRANSACTION, "transaction");
    private Path bucket;

    @Override
    public void configure(Map<String, ?> settings) {
        bucket = Path.of((String) settings.get("bucket"));
    }

    private byte[] read(RemoteLogSegmentMetadata segment, String suffix) throws RemoteStorageException {
        var part = segment.remoteLogSegmentId().topicIdPartition();
        var name = String.format("%020d-%s%s", segment.startOffset(), segment.remoteLogSegmentId().id(), suffix);
        var folder = bucket.resolve(part.topic() + "-" + part.topicId()).resolve(Integer.toString(part.partition()));
        try {
            return Files.readAllBytes(folder.resolve(name));
        } catch (IOException error) {
            throw new RemoteResourceNotFoundException(error);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start) throws RemoteStorageException {
        return fetchLogSegment(segment, start, Integer.MAX_VALUE - 1);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, int start, int last) throws RemoteStorageException {
        byte[] log = read(segment, ".log");
        return new ByteArrayInputStream(Arrays.copyOfRange(log, start, Math.min(last + 1, log.length)));
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata segment, IndexType type) throws RemoteStorageException {
        try {
            JsonNode manifest = new ObjectMapper().readTree(read(segment, ".rsm-manifest"));
            JsonNode part = manifest.get("segmentIndexes").get(NAMES.get(type));
            if (part == null || part.isNull()) {
                throw new RemoteResourceNotFoundException("no " + type);
            }
            int start = part.get("position").asInt();
            byte[] indexes = read(segment, ".indexes");
            return new ByteArrayInputStream(Arrays.copyOfRange(indexes, start, start + part.get("size").asInt()));
        } catch (IOException error) {
            throw new RemoteStorageException(error);
        }
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata segment, LogSegmentData data)
            throws RemoteStorageException {
        throw new RemoteStorageException("it only reads");
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
    }

    @Override
    public void close() {
    }
}
