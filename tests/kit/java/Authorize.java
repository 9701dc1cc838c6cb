import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;

/** Kafka's StandardAuthorizer, asked over stdin. Lines of words separated by tabs:
 * new ALLOW_WITHOUT | acl KIND PATTERN NAME PRINCIPAL HOST OPERATION PERMISSION (numbers as on the wire)
 * may PRINCIPAL HOST OPERATION KIND NAME | any PRINCIPAL HOST OPERATION KIND; to these two it answers 1 or 0. */
public class Authorize {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        StringBuilder out = new StringBuilder();
        StandardAuthorizer authorizer = null;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] w = line.split("\t");
            switch (w[0]) {
                case "new":
                    authorizer = new StandardAuthorizer();
                    authorizer.configure(Map.of("allow.everyone.if.no.acl.found", w[1], "node.id", "1"));
                    authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                    authorizer.completeInitialLoad();
                    break;
                case "acl":
                    authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                        ResourceType.fromCode(Byte.parseByte(w[1])), w[3], PatternType.fromCode(Byte.parseByte(w[2])),
                        w[4], w[5], AclOperation.fromCode(Byte.parseByte(w[6])),
                        AclPermissionType.fromCode(Byte.parseByte(w[7]))));
                    break;
                case "may":
                    Action action = new Action(operation(w[3]), new ResourcePattern(
                        ResourceType.fromCode(Byte.parseByte(w[4])), w[5], PatternType.LITERAL), 1, false, false);
                    out.append(authorizer.authorize(context(w[1], w[2]), List.of(action)).get(0).ordinal() == 0 ? '1' : '0');
                    break;
                default:
                    out.append(authorizer.authorizeByResourceType(context(w[1], w[2]), operation(w[3]),
                        ResourceType.fromCode(Byte.parseByte(w[4]))).ordinal() == 0 ? '1' : '0');
            }
        }
        System.out.println(out);
    }

    private static AclOperation operation(String code) {
        return AclOperation.fromCode(Byte.parseByte(code));
    }

    private static AuthorizableRequestContext context(String principal, String host) throws Exception {
        String[] parts = principal.split(":", 2);
        InetAddress address = InetAddress.getByName(host);
        return new AuthorizableRequestContext() {
            public String listenerName() { return "PLAINTEXT"; }
            public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
            public KafkaPrincipal principal() { return new KafkaPrincipal(parts[0], parts[1]); }
            public InetAddress clientAddress() { return address; }
            public int requestType() { return 0; }
            public int requestVersion() { return 0; }
            public String clientId() { return "c"; }
            public int correlationId() { return 0; }
        };
    }
}
