package testserver

import (
	"slices"
	"strconv"
	"strings"
)

// clusterNode is a line of CLUSTER NODES.
type clusterNode struct {
	id     string
	flags  map[string]bool
	master string // the ID of the node's master; "-" for a master
	epoch  int
	slots  []string // "7" or "7-9"
}

func parseNode(line string) clusterNode {
	f := strings.Fields(line)
	n := clusterNode{id: f[0], flags: make(map[string]bool), master: f[3]}
	for flag := range strings.SplitSeq(f[2], ",") {
		n.flags[flag] = true
	}
	n.epoch, _ = strconv.Atoi(f[6])
	for _, r := range f[8:] {
		if r[0] != '[' { // an entry in brackets is a slot in migration
			n.slots = append(n.slots, r)
		}
	}
	return n
}

func (n clusterNode) serves(slot int) bool {
	return slices.ContainsFunc(n.slots, func(r string) bool {
		first, last, isRange := strings.Cut(r, "-")
		if !isRange {
			last = first
		}
		from, _ := strconv.Atoi(first)
		to, _ := strconv.Atoi(last)
		return from <= slot && slot <= to
	})
}

func (s *Redis) myself() (clusterNode, error) {
	text, err := s.ask("CLUSTER", "NODES")
	if err != nil {
		return clusterNode{}, err
	}
	for line := range strings.Lines(text) {
		if n := parseNode(line); n.flags["myself"] {
			return n, nil
		}
	}
	return clusterNode{}, strconv.ErrSyntax
}

func nodeID(s *Redis) string {
	s.t.Helper()
	return s.Do("CLUSTER", "MYID").(string)
}

// Slot returns the cluster slot of key. If the first braces in key are not empty, only
// the part between them determines the slot.
func Slot(key string) int {
	if _, tail, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(tail, "}"); ok && tag != "" {
			key = tag
		}
	}
	var crc uint16
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % slots
}
