-- Acquire tries once to admit a claim. This file grants a free key to the usual
-- claim, run.lua one to any other, and acquire.lua decides about a key that is not free.
-- A Store that can learn the time of the key's server tries the SET of this file by
-- itself first, without a script.
--
-- after    clock.lua (key, stamp)
-- KEYS[1]  the key
-- ARGV     1 'acquire <flags> <id> <wake>', see state.lua; flags: f fair, w wait,
--          g it can be granted by message, c cluster; 2 lease, 3 owner, 4 TTL in
--          ms. Where one of them is not the usual: 5 weight, 6 limit, 7 owner to
--          join or '', 8 least token; for a run, with those: 9 the value that it
--          begins with, 10 how many ms to keep its record
-- answer   token               granted
--          {OK, token, owner}  granted as a hold of the owner that it joined
--          {OK, token, owner, attempt, ms[, value]}
--                              the same for a run, with how long its record is
--                              kept and its value, if that is not the claim's
--          {DONE, attempt, ms, value}
--                              a finished record; nothing was claimed
--          {BUSY, ms[, n, deadline]}
--                              until the first blocking hold expires; of a claim
--                              that waits, about how many do, and until when it is
--                              remembered
--          {LOST}              the lease was released before
--          {HEAVY}             the claim is heavier than the hold it joins
--
-- The first write is a SET or an HSET, which a server out of memory refuses: then
-- nothing has changed.

local short = ARGV[4] .. ' ' .. ARGV[3] .. ' ' .. ARGV[2]
if not ARGV[5] then
  local done = redis.pcall('SET', key, short, 'NX', 'PX', ARGV[4])
  if done and done.ok then
    return stamp
  end
end
