-- Acquire tries once to admit a claim. This part answers with a finished record
-- and grants a free key, acquire.lua does the rest.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'acquire', 2 lease, 3 owner, 4 owner to join or '', 5 weight,
--          6 limit, 7 TTL in ms, 8 flags: f fair, w wait, g it can be granted
--          by message, c cluster, r<ms> how long to keep the record of a run, 9 least token, 10 prefix of the
--          wake channels, 11 id of the caller's channel, 12 the value that a
--          run begins with, absent for a claim without a record
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

if ARGV[12] then
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
  local hold = now + ARGV[7] .. ' ' .. ARGV[7] .. ' ' .. ARGV[5] .. ' ' .. ARGV[3]
  local token, ms = 0, ARGV[7]
  if ARGV[5] == '2147483647' then
    token = us
    if ARGV[9] ~= '0' and tonumber(ARGV[9]) > us then
      token = tonumber(ARGV[9])
      ms = math.max(ms, math.ceil((token - us) / 1000) + 1)
    end
    redis.call('HSET', key, 'h:' .. ARGV[2], hold, 't', token)
  else
    redis.call('HSET', key, 'h:' .. ARGV[2], hold)
  end
  local answer = token
  if ARGV[12] then
    local retain = tonumber(string.match(ARGV[8], '%d+'))
    redis.call('HSET', key, 'r', now + retain .. ' 1 0 ' .. ARGV[2], 'v', ARGV[12])
    ms = math.max(ms, retain)
    answer = {OK, token, ARGV[3], 1, retain}
  end
  local done = redis.pcall('PEXPIRE', key, ms)
  if type(done) == 'table' then
    -- Without the right to do this: better no key than one without an end.
    redis.pcall('DEL', key)
    return done
  end
  return answer
end
