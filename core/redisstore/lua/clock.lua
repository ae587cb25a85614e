-- The key of a lock, and the time. Every script on the key of a lock begins with this
-- file, except the scripts of WithPlainKeys and WithRedisson. A file uses the locals of
-- the files before it, which scripts.go lists in order. A script returns one of the
-- words below, a list that begins with a word, or a token in place of OK.
--
-- The key is a string, or a hash for a crowd, see crowd.lua. In the examples L1 is a
-- lease and O1 its owner. The string has one of two forms:
--   "<ms> <owner> <lease>"  one exclusive hold: "30000 O1 L1". The hold began <ms> before the
--                           key expires, and expires with the key. A SET NX PX writes it, with
--                           or without a script. Only the holder knows the token, which is the
--                           time of that script, or of a TIME after the SET
--   "f" and fields, each a tab, a name, a space and a text; r is the first, and t, w and v are
--                           the last:
--                           "f\th:L1 1764088662123456 30000 O1 2147483647\tt 1764088662123456".
--                           The number of fields can be 0
-- The fields are
--   r          the record: "<deadline> <attempt> <state> <lease>"; this lease
--              began the run, or saved the record. A deadline of 0 is the end of the
--              key. The states:
--              0  a run has begun without an earlier record:
--                 "1764175062123 1 0 L1"
--              1  a finished record: "1764175062123 1 1 L1"
--              2  a record that allows another run: "0 1 2 L1"
--              3  a run has begun after an earlier record. The deadline, state and lease of
--                 that record come last, and are restored if the run is undone. L2 has begun
--                 a run after the last example: "1764175092123 2 3 L2 1764175062123 2 L1"
--              If two runs in a row are undone, the deadline stays, and there is no lease:
--              "1764175062123 1 2 "
--   h:<lease>  one hold: "<since> <ms> <owner> <weight>". A reader: "1764088662123456 30000 O1 1"
--   k:<lease>  a released hold that keeps the key taken for a while. The text is that of a
--              hold, with an empty owner: "1764088662123456 5000  2147483647"
--   d:<lease>  a tombstone: "<since> <ms>"; the lease must not be granted any more:
--              "1764088662123456 60000"
--   t          the fencing token of the last exclusive grant. The next 63 tokens also belong
--              to that grant (store.TokenStep), so t stays until the clock has passed these
--              tokens. If a script has found the short string above, t is the end of the
--              millisecond that follows the millisecond of the SET. t keeps this value until
--              the holder reports the last token that it has used. All earlier grants have
--              lower tokens. The holder's own token can be higher than t, but not later
--              than the end of the hold. If the clock was set back, t is the end of the
--              hold
--   w          the waiters, in order of arrival: a line for each (see waiters.lua)
--   v          the value of the record, unchanged
-- Since is the time at which the entry was written, in us on the clock of this server.
-- The entry lasts for its ms from then on. If since is in the future, the clock was set
-- back, and the entry lasts for its ms from now on. A deadline, in ms, does not show
-- that the clock was set back. An entry with a deadline then lasts longer by as much as
-- the clock was set back.
--
-- The scripts run under Lua 5.1 and 5.4, and on servers that accept a key only as
-- KEYS[n]. So a text is converted to a number by arithmetic or tonumber before it is
-- compared with a number or passed to math. A quotient is converted to an integer by
-- math.floor or math.ceil. A number is converted to a text by '%.0f'.

-- FOREVER is the remaining time, in ms, of a record if another client has removed the
-- expiry of its key (PERSIST).
local FOREVER = 86400000
-- WAITER_LIFE is the lifetime of a waiter's place, in ms (store.WaiterLife). A grant by
-- message lasts for WINDOW plus the time since its waiter asked, which must be at most
-- ASKED. See push.go.
local WAITER_LIFE, WINDOW, ASKED = 10000, 1500, 7000
-- CROWD is the maximum number of leases in a string without a record. LATE is the number
-- of ms for which a lease may stay in a hash after its expiry, see crowd.lua.
local CROWD = 8
local LATE = 1000
-- The words with which an answer begins.
local OK, BUSY, LOST, HEAVY, DONE, BEHIND = 0, 1, 2, 3, 4, 5
local time = redis.call('TIME')
local stamp = time[1] .. (#time[2] == 6 and time[2] or string.sub('00000' .. time[2], -6))
-- The time as a number, in us and in ms.
local us = tonumber(stamp)
local now = math.floor(us / 1000)
