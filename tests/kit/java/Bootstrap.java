import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.metadata.bootstrap.BootstrapDirectory;
import org.apache.kafka.metadata.bootstrap.BootstrapMetadata;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Adds topics with given ids to the records that a freshly formatted Kafka begins with, so that it opens partition
 * directories which somebody else wrote instead of calling them stray.
 *
 * Arguments: DATA_DIR NODE_ID DIRECTORY_ID, then for each topic NAME TOPIC_ID PARTITIONS LEADER_EPOCH.
 */
public class Bootstrap {
    public static void main(String[] arguments) throws Exception {
        String data = arguments[0];
        int node = Integer.parseInt(arguments[1]);
        Uuid directory = Uuid.fromString(arguments[2]);

        BootstrapDirectory bootstrap = new BootstrapDirectory(data);
        List<ApiMessageAndVersion> records = new ArrayList<>(bootstrap.read().records());
        for (int i = 3; i < arguments.length; i += 4) {
            Uuid topic = Uuid.fromString(arguments[i + 1]);
            records.add(new ApiMessageAndVersion(new TopicRecord().setName(arguments[i]).setTopicId(topic), (short) 0));
            for (int partition = 0; partition < Integer.parseInt(arguments[i + 2]); partition++) {
                records.add(new ApiMessageAndVersion(
                    new PartitionRecord()
                        .setTopicId(topic)
                        .setPartitionId(partition)
                        .setReplicas(List.of(node))
                        .setIsr(List.of(node))
                        .setLeader(node)
                        .setLeaderEpoch(Integer.parseInt(arguments[i + 3]))
                        .setPartitionEpoch(0)
                        .setDirectories(List.of(directory)),
                    (short) 1));
            }
        }
        Files.deleteIfExists(Path.of(data, "bootstrap.checkpoint"));
        bootstrap.writeBinaryFile(BootstrapMetadata.fromRecords(records, "tierd tests"));
    }
}
