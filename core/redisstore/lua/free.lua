-- Acquire tries once to admit a claim. This part answers with a finished record
-- and grants a free key, acquire.lua does the rest.
--
-- KEYS[1]  the key's hash
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
-- The first write is an HSET, which a server out of memory refuses: then
-- nothing has changed.

if ARGV[9] then
  -- Before all else: a value can be long, and is read only if it is asked for.
  local finished = redis.call('HGET', key, 'r')
  if finished then
    local deadline, attempt = string.match(finished, '^(%d+) (%d+) 1 ')
    if deadline and tonumber(deadline) > now then
      return {DONE, tonumber(attempt), tonumber(deadline) - now, redis.call('HGET', key, 'v')}
    end
  end
end
local flat = redis.call('HGETALL', key)
if #flat == 0 then
  local field, hold = 'h:' .. ARGV[2], stamp() .. ' ' .. ARGV[4] .. ' ' .. ARGV[3]
  local token, ms = us, ARGV[4]
  if not ARGV[5] then
    redis.call('HSET', key, field, hold)
  elseif ARGV[5] ~= '2147483647' then
    token = 0
    redis.call('HSET', key, field, hold .. ' ' .. ARGV[5])
  elseif tonumber(ARGV[8]) > us then
    token = tonumber(ARGV[8])
    ms = math.max(ms, math.ceil((token - us) / 1000) + 1)
    redis.call('HSET', key, field, hold .. ' ' .. ARGV[5], 't', ARGV[8])
  else
    redis.call('HSET', key, field, hold)
  end
  local answer = token
  if ARGV[9] then
    redis.call('HSET', key, 'r', now + ARGV[10] .. ' 1 0 ' .. ARGV[2], 'v', ARGV[9])
    ms = math.max(ms, ARGV[10])
    answer = {OK, token, ARGV[3], 1, tonumber(ARGV[10])}
  end
  local done = redis.pcall('PEXPIRE', key, ms)
  if type(done) == 'table' then
    -- Without the right to do this: better no key than one without an end.
    redis.pcall('DEL', key)
    return done
  end
  return answer
end
