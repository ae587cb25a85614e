package neighbours

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// The drivers of clients whose locks are plain keys.
var (
	springKit = javaKit("spring", "SpringDriver")

	pythonKit = &kit{
		name: "python", files: []string{"python/driver.py"},
		install: "apt-get install python3-pip, or brew install python", needs: []string{"python3"},
		resolve: func(dir string, packages []string) error {
			return call(dir, "python3", append([]string{"-m", "pip", "install", "--quiet", "--target", "lib"}, packages...)...)
		},
	}

	nodeKit = &kit{
		name: "node", files: []string{"node/driver.js"},
		install: "apt-get install npm, or brew install node", needs: []string{"node", "npm"},
		resolve: func(dir string, packages []string) error {
			return call(dir, "npm", append([]string{"install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts"}, packages...)...)
		},
	}
)

// StartSpring starts a JVM with Spring Integration's RedisLockRegistry ("spring", and
// "spring-renews" with a renewal scheduler) and ShedLock ("shedlock", and "shedlock-safe" with
// safeUpdate). Its commands, and those of the other drivers of plain keys, are "trylock" and
// "extend" with a client, a name and a TTL, and "unlock" with a client and a name.
func StartSpring(t testing.TB, addr string) *Driver {
	t.Helper()
	return startJava(t, springKit, "SpringDriver", addr)
}

// StartPython starts a Python with redis-py's Lock ("redis-py").
func StartPython(t testing.TB, addr string) *Driver {
	t.Helper()
	dir := pythonKit.require(t)
	cmd := exec.Command("python3", filepath.Join(dir, "driver.py"), addr)
	cmd.Env = append(cmd.Environ(), "PYTHONPATH="+filepath.Join(dir, "lib"))
	return Start(t, cmd)
}

// StartNode starts a Node.js with node-redlock ("redlock") on ioredis, on as many servers as
// there are addresses.
func StartNode(t testing.TB, addrs ...string) *Driver {
	t.Helper()
	return Start(t, exec.Command("node", append([]string{filepath.Join(nodeKit.require(t), "driver.js")}, addrs...)...))
}
