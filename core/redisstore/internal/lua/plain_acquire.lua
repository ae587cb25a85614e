-- Acquire sets a plain key that is absent, or prolongs the owner's own.
--
-- KEYS[1]  the key
-- ARGV     1 owner, 2 TTL in ms
-- answer   {'ok', 0, ''}
--          {'busy', ms until the key expires, 0 if it does not}

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return {'ok', 0, ''}
end
local left = redis.call('PTTL', KEYS[1])
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'busy', math.max(left, 0)}
end
if left < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'ok', 0, ''}
