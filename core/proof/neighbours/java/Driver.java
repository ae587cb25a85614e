import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** Obeys the commands on standard input. driver.go of package neighbours describes the lines. */
abstract class Driver {
    /** Carries out a command, and returns its answer. words[0] is the verb. */
    abstract String run(String[] words) throws Exception;

    /** Answers commands until the end of standard input. Each WHO has its own thread. */
    void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Map<String, ExecutorService> threads = new HashMap<>();
        answer("0 ready");
        for (String line; (line = in.readLine()) != null;) {
            String[] words = line.split(" ", 3);
            threads.computeIfAbsent(words[1], who -> Executors.newSingleThreadExecutor())
                    .execute(() -> answer(words[0] + " " + reply(words[2].split(" "))));
        }
        Runtime.getRuntime().halt(0);
    }

    private String reply(String[] words) {
        try {
            return run(words);
        } catch (Throwable e) {
            return "error " + e.getClass().getSimpleName() + " " + String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
        }
    }

    private static synchronized void answer(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String yes(boolean it) {
        return it ? "yes" : "no";
    }
}
