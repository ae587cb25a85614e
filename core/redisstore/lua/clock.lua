-- The key of a lock, and the time. Every script on such a key begins with this file. Its
-- answer is a word below, or a list that begins with one, or a token, which means OK.
--
-- The key is a string, or a hash for a crowd, see crowd.lua. In the examples L1 is a
-- lease and O1 its owner. The string has one of two forms:
--   "<ms> <owner> <lease>"  one exclusive hold, which began these ms before the key expires,
--                           and expires with it: "30000 O1 L1". A SET NX PX without a script
--                           writes it. Its token is a time of this server after that, which
--                           only its holder knows
--   "f" and fields, each a tab, a name, a space and a text; r is the first, and t, w and v
--                           are the last:
--                           "f\th:L1 1764088662123456 30000 O1 2147483647\tt 1764088662123456".
--                           There may be no fields
-- The fields are
--   r          the record: "<deadline> <attempt> <state> <lease>"; the lease is the one
--              that began the run, or saved the record. A deadline of 0 is the end of the
--              key. The states:
--              0  a run has begun without a record before it:
--                 "1764175062123 1 0 L1"
--              1  a finished record: "1764175062123 1 1 L1"
--              2  one left for another run: "0 1 2 L1"
--              3  a run has begun after another record, whose deadline, state and lease
--                 come last: they are restored if the run is undone. L2 has begun after
--                 the last example: "1764175092123 2 3 L2 1764175062123 2 L1"
--              If two runs in a row are undone, the deadline stays, and there is no lease:
--              "1764175062123 1 2 "
--   h:<lease>  one hold: "<since> <ms> <owner> <weight>". A reader: "1764088662123456 30000 O1 1"
--   k:<lease>  a hold that was released but stays for a while, the same without
--              an owner: "1764088662123456 5000  2147483647"
--   d:<lease>  a tombstone: "<since> <ms>", the lease may not be granted any more:
--              "1764088662123456 60000"
--   t          the fencing token of the last exclusive grant. The 63 after it belong to
--              that grant, too (store.TokenStep), so it stays until the clock has passed them.
--              If a script has found the short string above, t is the end of the
--              millisecond after that in which its key was set, until its holder reports
--              the last token that it has used: all earlier grants have lower ones. The
--              holder's own token can be later than t, but not later than the end of the
--              hold: t is that end if the clock was set back
--   w          the waiters, in order of arrival: a line for each (see waiters.lua)
--   v          the value of the record, unchanged
-- Since is the time at which the entry was written, in us on the clock of this server.
-- The entry lasts for its ms from then on. If since is in the future, the clock was set
-- back: the entry lasts for its ms from now on. A deadline, in ms, does not show that:
-- an entry with a deadline is then kept for longer, by as much as the clock was set
-- back.
--
-- The scripts run under Lua 5.1 and 5.4, and on servers that accept a key only as
-- KEYS[n]. So a text becomes a number by arithmetic or tonumber before it is compared
-- with a number or passed to math, a quotient becomes a whole number by math.floor or
-- math.ceil, and a number becomes a text by '%.0f'.

-- The remaining time, in ms, of a record from whose key another client has removed the
-- expiry (PERSIST).
local FOREVER = 86400000
-- WAITER_LIFE is the length of a place in line, in ms (store.WaiterLife). A grant by
-- message lasts for WINDOW and the time since its waiter asked, which is at most ASKED.
-- See push.go.
local WAITER_LIFE, WINDOW, ASKED = 10000, 1500, 7000
-- The words with which an answer begins.
local OK, BUSY, LOST, HEAVY, DONE, BEHIND = 0, 1, 2, 3, 4, 5
local time = redis.call('TIME')
local stamp = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
-- The same as a number, in us and in ms.
local us = tonumber(stamp)
local now = math.floor(us / 1000)
