package main_test

import (
	"os/exec"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

// orphans is a script that starts ten processes without a parent, five of them in other
// groups. The ten processes exit at once. The script exits with 7 when its parent has
// no children except the script and the guard, and otherwise with 9.
const orphans = `
for i in 1 2 3 4 5; do
	sh -c 'sh -c "echo . >>\"\$0\"" "$0" & ' "$0"
	sh -c 'setsid sh -c "echo . >>\"\$0\"" "$0" & ' "$0"
done
for try in $(seq 300); do
	children=0
	for stat in /proc/[0-9]*/stat; do
		read -r pid name state parent rest <"$stat" && [ "$parent" = $PPID ] && children=$((children + 1))
	done 2>/dev/null
	[ "$(wc -l <"$0")" = 10 ] && [ $children = 2 ] && exit 7
	sleep 0.1
done
echo "process $PPID has $children children"
exit 9`

func TestRun_OrphansAreReaped(t *testing.T) {
	t.Parallel()
	server := testserver.StartRedis(t)
	apart := []string{"--pid", "--fork", "--mount-proc", "--kill-child"}
	if err := exec.Command("unshare", append(apart, "setsid", "true")...).Run(); err != nil {
		testserver.Missing(t, "a process namespace of one's own takes root, unshare and setsid (apt-get install util-linux)")
	}
	for name, prefix := range map[string][]string{"as process 1": apart, "as a child": {"--kill-child"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inside := lockkit(t, redisURL(server.Addr), "run", "-wait", "1m", "orphans:1", "--", "sh", "-c", orphans, file(t))
			cmd := exec.Command("unshare", append(prefix, inside.Args...)...)
			cmd.Env = inside.Env
			testserver.EndWithParent(cmd)
			if c := end(t, cmd); c.code != 7 {
				t.Errorf("got exit code %d, want 7: %s%s", c.code, c.out, c.errs)
			}
		})
	}
}
