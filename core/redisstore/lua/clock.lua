-- What every script on a hash begins with: its key and the time.
--
-- KEYS[1] is a hash:
--   h:<lease>  one hold: "<deadline> <weight> <owner>"
--   k:<lease>  a hold that was released but stays for a while, the same without
--              an owner
--   d:<lease>  a tombstone: "<deadline>", the lease may not be granted any more
--   t          the last fencing token
--   w          who waits, in order of arrival: a line for each (see state.lua)
--   r          the record: "<deadline> <attempt> <state> <lease>"; state 0 is a
--              run that has begun, 1 a finished record, 2 one left for another
--              run; the lease is who began it, or who saved it
--   v          its value, as it came
-- Deadlines are in ms on the clock of this server. Numbers are written with
-- %.0f: tostring() rounds what is above 10^14.

local key = KEYS[1]
local OK, BUSY, LOST, HEAVY, DONE = 0, 1, 2, 3, 4
local time = redis.call('TIME')
local us = time[1] * 1000000 + time[2]
local now = math.floor(us / 1000)

-- text writes a whole number.
local function text(n)
  return string.format('%.0f', n)
end
