import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of many tools in one JVM, one after the other.
 *
 * Each line of the input is a class and its arguments, separated by tabs. The answer is a line "STATUS LENGTH" and
 * LENGTH bytes: what the tool printed. A tool that takes longer than the one argument of this program says, in
 * seconds, is left alone with status -1.
 */
public class Tools {
    private static final class Ended extends Error {
        Ended() {
            super(null, null, false, false);
        }
    }

    public static void main(String[] arguments) throws Exception {
        long limitMs = Long.parseLong(arguments[0]) * 1000;
        PrintStream answers = System.out;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(new byte[0]));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(said, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            int status = run(line.split("\t", -1), limitMs);
            byte[] bytes = said.toByteArray();
            answers.printf("%d %d%n", status, bytes.length);
            answers.write(bytes);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static int run(String[] words, long limitMs) throws InterruptedException {
        int[] status = {-1};
        Thread tool = new Thread(() -> {
            try {
                List<Thread> before = hooks();
                int code = call(words);
                for (Thread hook : hooks()) {
                    if (!before.contains(hook)) {
                        Runtime.getRuntime().removeShutdownHook(hook);
                        hook.run();
                    }
                }
                status[0] = code;
            } catch (ReflectiveOperationException absent) {
                absent.printStackTrace();
            }
        });
        tool.setDaemon(true);
        tool.start();
        tool.join(limitMs);
        return status[0];
    }

    /** A tool that catches what ends it still ends with the first status that it named. */
    private static int call(String[] words) throws ReflectiveOperationException {
        int[] named = {-1};
        Exit.Procedure end = (code, message) -> {
            named[0] = named[0] < 0 ? code : named[0];
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        String[] arguments = Arrays.copyOfRange(words, 1, words.length);
        Method main = Class.forName(words[0]).getMethod("main", String[].class);
        try {
            main.invoke(null, (Object) arguments);
        } catch (InvocationTargetException thrown) {
            if (named[0] < 0) {
                thrown.getCause().printStackTrace();
                return 1;
            }
        }
        return Math.max(named[0], 0);
    }

    /** What tools want to do at the end of their JVM, which is not to end with them. */
    @SuppressWarnings("unchecked")
    private static List<Thread> hooks() throws ReflectiveOperationException {
        Class<?> owner = Class.forName("java.lang.ApplicationShutdownHooks");
        Field field = owner.getDeclaredField("hooks");
        field.setAccessible(true);
        synchronized (owner) {
            return List.copyOf(((Map<Thread, Thread>) field.get(null)).keySet());
        }
    }
}
