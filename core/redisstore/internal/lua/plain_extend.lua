-- Extend makes the owner's plain key last for a TTL from now, never less than
-- before.
--
-- KEYS[1]  the key
-- ARGV     1 owner, 2 TTL in ms
-- answer   {'ok'} or {'lost'}

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return {'ok'}
