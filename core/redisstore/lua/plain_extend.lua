-- Extend makes the owner's plain key last for a TTL from now, and never shortens its
-- life.
--
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 owner, 3 TTL in ms
-- answer   0  it is held, {2}  it is not: OK and LOST of clock.lua

if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return {2}
end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 0
