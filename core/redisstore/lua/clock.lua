-- What every script begins with but those on plain keys: its key and the time.
--
-- KEYS[1] is a string if it was free when a usual exclusive claim was granted it,
-- otherwise a hash, until it is gone. Neither becomes the other: while a slot moves
-- to another node, a key of it that was deleted cannot be written here. A string is
--   "<since> <ms> <owner> <lease>"           one exclusive hold, whose token is since,
--                                            and which ends when the key does,
--   "<since> <ms> <owner> <lease> <token> "  one exclusive hold, or
--   "f" and for each field of a hash a tab, its name, a space and its value, and t, w
--                                            and v last.
-- A hash has the fields
--   h:<lease>  one hold: "<since> <ms> <owner> <weight>". One without a weight is
--              exclusive and was granted a free key: its token is when that was
--   k:<lease>  a hold that was released but stays for a while, the same without
--              an owner
--   d:<lease>  a tombstone: "<since> <ms>", the lease may not be granted any more
--   t          the fencing token of the last exclusive grant, absent as long as a hold
--              without a weight tells it. The 63 after it belong to that grant, too
--              (core.TokenStep), so it stays until the clock has passed them
--   w          the waiters, in order of arrival: a line for each (see state.lua)
--   r          the record: "<deadline> <attempt> <state> <lease>"; state 0 is a
--              run that has begun where there was no record, 3 one that has
--              begun where there was, 1 a finished record, 2 one left for
--              another run; the lease is the one that began it, or saved it.
--              State 3 has deadline, state and lease of the record that it has
--              found after that: what is there again if the run is taken back.
--              The deadline stays, and there is no lease, where two in a row are
--   v          its value, as it came
-- Since is when it was written, in us on the clock of this server, and it lasts
-- for so many ms from then on: if it was written in the future, the clock was set
-- back, and the ms are what is left. The deadlines of the others, in ms, do not
-- tell, and are kept for longer then.
-- A number that is joined to a text is rounded above 10^14, one that is an
-- argument of redis.call above 2^53; and to write either costs more than most
-- else here.

local key = KEYS[1]
local OK, BUSY, LOST, HEAVY, DONE = 0, 1, 2, 3, 4
local time = redis.call('TIME')
local stamp = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
