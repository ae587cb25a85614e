import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/** Drives the locks of Spring Integration's RedisLockRegistry and of ShedLock. */
final class SpringDriver extends Driver {
    private final LettuceConnectionFactory factory;
    private final Map<String, RedisLockRegistry> registries = new ConcurrentHashMap<>();
    private final Map<String, SimpleLock> held = new ConcurrentHashMap<>();
    private final ExtensibleLockProvider shedLock;
    private final ExtensibleLockProvider safeShedLock;
    private final ThreadPoolTaskScheduler scheduler = new ThreadPoolTaskScheduler();

    private SpringDriver(String host, int port) {
        factory = new LettuceConnectionFactory(host, port);
        factory.afterPropertiesSet();
        factory.start();
        scheduler.initialize();
        shedLock = new RedisLockProvider.Builder(factory).environment("test").build();
        safeShedLock = new RedisLockProvider.Builder(factory).environment("test").safeUpdate(true).build();
    }

    public static void main(String[] args) throws Exception {
        int colon = args[0].lastIndexOf(':');
        new SpringDriver(args[0].substring(0, colon), Integer.parseInt(args[0].substring(colon + 1))).serve();
    }

    /** Returns the registry of a client and thread. All locks of a registry have the same owner. */
    private RedisLockRegistry registry(String client) {
        return registries.computeIfAbsent(client + " " + Thread.currentThread().getId(), k -> {
            RedisLockRegistry r = new RedisLockRegistry(factory, "test");
            if (client.equals("spring-renews")) {
                r.setRenewalTaskScheduler(scheduler);
            }
            return r;
        });
    }

    @Override
    String run(String[] w) throws Exception { // VERB CLIENT NAME TTL
        return w[1].startsWith("spring") ? spring(w) : shedLock(w);
    }

    private String spring(String[] w) throws Exception {
        RedisLockRegistry registry = registry(w[1]);
        DistributedLock lock = registry.obtain(w[2]);
        switch (w[0]) {
            case "trylock":
                return yes(lock.tryLock(Duration.ZERO, millis(w[3])));
            case "extend":
                registry.renewLock(w[2], millis(w[3]));
                return "done";
            case "unlock":
                lock.unlock();
                return "done";
            default:
                throw new IllegalArgumentException("no verb " + w[0]);
        }
    }

    private String shedLock(String[] w) {
        String key = Thread.currentThread().getId() + " " + w[1] + " " + w[2];
        Optional<SimpleLock> lock;
        switch (w[0]) {
            case "trylock":
                ExtensibleLockProvider provider = w[1].equals("shedlock-safe") ? safeShedLock : shedLock;
                lock = provider.lock(new LockConfiguration(Instant.now(), w[2], millis(w[3]), Duration.ZERO));
                break;
            case "extend":
                lock = held.get(key).extend(millis(w[3]), Duration.ZERO);
                break;
            case "unlock":
                held.remove(key).unlock();
                return "done";
            default:
                throw new IllegalArgumentException("no verb " + w[0]);
        }
        lock.ifPresent(l -> held.put(key, l));
        return yes(lock.isPresent());
    }

    private static Duration millis(String text) {
        return Duration.ofMillis(Long.parseLong(text));
    }
}
