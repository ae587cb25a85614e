-- Acquire tries once to admit a claim. This part does it for a free key,
-- acquire.lua for any other.
--
-- KEYS[1]  the key's hash
-- ARGV     1 'acquire', 2 lease, 3 owner, 4 owner to join or '', 5 weight,
--          6 limit, 7 TTL in ms, 8 flags: f fair, w wait, c cluster, 9 least
--          token, 10 prefix of the wake channels, 11 id of the caller's channel
-- answer   {OK, token}         granted
--          {OK, token, owner}  granted as a hold of the owner that it joined
--          {BUSY, ms}          until the first blocking hold expires
--          {LOST}              the lease was released before
--          {HEAVY}             the claim is heavier than the hold it joins
--
-- The first write is an HSET, which a server out of memory refuses: then
-- nothing has changed.

local flat = redis.call('HGETALL', key)
if #flat == 0 then
  local hold = text(now + ARGV[7]) .. ' ' .. ARGV[5] .. ' ' .. ARGV[3]
  local token, ms = 0, tonumber(ARGV[7])
  if ARGV[5] == '2147483647' then
    token = math.max(us, tonumber(ARGV[9]))
    if token > us then
      ms = math.max(ms, math.ceil((token - us) / 1000) + 1)
    end
    redis.call('HSET', key, 'h:' .. ARGV[2], hold, 't', text(token))
  else
    redis.call('HSET', key, 'h:' .. ARGV[2], hold)
  end
  local done = redis.pcall('PEXPIRE', key, text(ms))
  if type(done) == 'table' then
    -- Without the right to do this: better no key than one without an end.
    redis.pcall('DEL', key)
    return done
  end
  return {OK, token}
end
