import java.net.URI;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/** Drives Redisson's locks. With a lease of 0 the watchdog extends a lock until it is unlocked. */
final class RedissonDriver extends Driver {
    private final RedissonClient client;
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    private RedissonDriver(Config config) {
        client = Redisson.create(config);
    }

    /**
     * The first argument is lockWatchdogTimeout in milliseconds. One of these follows: the address of
     * a server; the addresses of a Cluster's nodes, of which there must be two or "unsharded" before
     * them; or "sentinel", the master's name and the sentinels' addresses.
     */
    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[0]));
        config.setThreads(4).setNettyThreads(4);
        if (args[1].equals("sentinel")) {
            var sentinel = config.useSentinelServers().setMasterName(args[2]).setScanInterval(500)
                    .setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
            for (int i = 3; i < args.length; i++) {
                sentinel.addSentinelAddress("redis://" + args[i]);
            }
        } else if (args.length == 2) {
            config.useSingleServer().setAddress("redis://" + args[1])
                    .setConnectionMinimumIdleSize(1).setConnectionPoolSize(16)
                    .setSubscriptionConnectionMinimumIdleSize(1).setSubscriptionConnectionPoolSize(4);
        } else {
            var cluster = config.useClusterServers().setMasterConnectionMinimumIdleSize(1).setSlaveConnectionMinimumIdleSize(1);
            int first = 1;
            if (args[1].equals("unsharded")) {
                cluster.setShardedSubscriptionMode(ShardedSubscriptionMode.OFF);
                first = 2;
            }
            String user = URI.create("redis://" + args[first]).getUserInfo();
            if (user != null) { // nodes that Redisson discovers need the user too
                cluster.setUsername(user.split(":")[0]).setPassword(user.split(":")[1]);
            }
            for (int i = first; i < args.length; i++) {
                cluster.addNodeAddress("redis://" + args[i]);
            }
        }
        new RedissonDriver(config).serve();
    }

    private RLock lock(String kind, String name) {
        return locks.computeIfAbsent(kind + " " + name, k -> {
            switch (kind) {
                case "RLock": return client.getLock(name);
                case "RFairLock": return client.getFairLock(name);
                case "RFencedLock": return client.getFencedLock(name);
                case "RSpinLock": return client.getSpinLock(name);
                case "RReadLock": return client.getReadWriteLock(name).readLock();
                case "RWriteLock": return client.getReadWriteLock(name).writeLock();
                default: throw new IllegalArgumentException("no kind " + kind);
            }
        });
    }

    @Override
    String run(String[] w) throws Exception {
        if (w[0].equals("owner")) {
            return client.getId() + ":" + Thread.currentThread().getId();
        }
        if (w[0].equals("key")) { // NAME ID
            return key(w[1], w[2]);
        }
        RLock lock = lock(w[1], w[2]);
        switch (w[0]) {
            case "lock": // KIND NAME LEASE
                if (millis(w[3]) < 0) {
                    lock.lock();
                } else {
                    lock.lock(millis(w[3]), TimeUnit.MILLISECONDS);
                }
                return "done";
            case "trylock": // KIND NAME WAIT LEASE
                return yes(lock.tryLock(Long.parseLong(w[3]), millis(w[4]), TimeUnit.MILLISECONDS));
            case "trylocknow": // KIND NAME
                return yes(lock.tryLock());
            case "unlock":
                lock.unlock();
                return "done";
            case "forceunlock":
                return yes(lock.forceUnlock());
            case "holds":
                return String.valueOf(lock.getHoldCount());
            case "held":
                return yes(lock.isHeldByCurrentThread());
            case "locked":
                return yes(lock.isLocked());
            case "left":
                return String.valueOf(lock.remainTimeToLive());
            case "locktoken": // KIND NAME LEASE
                RFencedLock fenced = (RFencedLock) lock;
                return String.valueOf(millis(w[3]) < 0 ? fenced.lockAndGetToken() : fenced.lockAndGetToken(millis(w[3]), TimeUnit.MILLISECONDS));
            case "trylocktoken": // KIND NAME WAIT LEASE
                Long token = ((RFencedLock) lock).tryLockAndGetToken(Long.parseLong(w[3]), millis(w[4]), TimeUnit.MILLISECONDS);
                return token == null ? "no" : token.toString();
            case "token":
                return String.valueOf(((RFencedLock) lock).getToken());
            default:
                throw new IllegalArgumentException("no verb " + w[0]);
        }
    }

    /** Returns the same name as the kit's core.Key(name, id), for an id without control characters. */
    private static String key(String name, String id) {
        return name + ":" + id.replace("%", "%25").replace(":", "%3A").replace("{", "%7B").replace("}", "%7D");
    }

    /** Returns the milliseconds of a lease. For 0 it returns -1, by which Redisson uses its watchdog. */
    private static long millis(String text) {
        long ms = Long.parseLong(text);
        return ms == 0 ? -1 : ms;
    }
}
