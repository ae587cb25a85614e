package testserver_test

import (
	"strings"
	"testing"

	"github.com/lockkit/lockkit/core/testserver"
)

func TestDisk(t *testing.T) {
	t.Parallel()
	// grow writes rows until the server refuses them, and returns the server's error.
	grow := func(write func(sql string) error) (err error) {
		for range 200 {
			if err = write("INSERT INTO kept VALUES " + strings.Repeat("('"+strings.Repeat("long", 50)+"'), ", 99) + "('last')"); err != nil {
				return err
			}
		}
		return nil
	}
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		disk := testserver.NewDisk(t, "")
		server := disk.StartMariaDB()
		server.Exec("CREATE DATABASE shop; CREATE TABLE shop.kept (v VARCHAR(999))")
		write := func(sql string) error {
			_, err := testserver.AskMySQL(server.Addr, "USE shop; "+sql)
			return err
		}
		disk.Fill()
		if err := grow(write); err == nil || !strings.Contains(err.Error(), "full") {
			t.Errorf("a full disk: got %v, want an error that names it", err)
		}
		disk.Free()
		if err := grow(write); err != nil {
			t.Errorf("with room: got %v, want nil", err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		disk := testserver.NewDisk(t, "/pg_wal/")
		server := disk.StartPostgres()
		server.Exec("CREATE TABLE kept (v text)")
		write := func(sql string) error {
			_, err := testserver.AskPostgres(server.Addr, sql)
			return err
		}
		disk.Fill()
		if err := grow(write); err == nil || !strings.Contains(err.Error(), "No space left on device") {
			t.Errorf("a full disk: got %v, want an error that names it", err)
		}
		disk.Free()
		if err := grow(write); err != nil {
			t.Errorf("with room: got %v, want nil", err)
		}
	})
}
