package rows

import "syscall"

func fileSystem(path string) (kind uint32, err error) {
	var st syscall.Statfs_t
	err = syscall.Statfs(path, &st)
	return uint32(st.Type), err
}
