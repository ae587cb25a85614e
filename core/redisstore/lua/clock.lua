-- What every script on a hash begins with: its key and the time.
--
-- KEYS[1] is a hash:
--   h:<lease>  one hold: "<deadline> <ms> <weight> <owner>"
--   k:<lease>  a hold that was released but stays for a while, the same without
--              an owner
--   d:<lease>  a tombstone: "<deadline> <ms>", the lease may not be granted any
--              more
--   t          the last fencing token that belongs to a grant
--   w          who waits, in order of arrival: a line for each (see state.lua)
--   r          the record: "<deadline> <attempt> <state> <lease>"; state 0 is a
--              run that has begun where there was no record, 3 one that has
--              begun where there was, 1 a finished record, 2 one left for
--              another run; the lease is who began it, or who saved it, and
--              absent where a run was taken back
--   v          its value, as it came
-- Deadlines are in ms on the clock of this server. Behind each is how far ahead
-- it was when it was written: if it is further ahead now, the clock was set back,
-- and that much is what is left. Records have none, and then are kept for longer.
-- A number that is joined to a
-- text is rounded above 10^14, one that is an argument of redis.call above 2^53.

local key = KEYS[1]
local OK, BUSY, LOST, HEAVY, DONE = 0, 1, 2, 3, 4
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = (us - us % 1000) / 1000
