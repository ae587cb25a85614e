-- Release deletes the owner's plain key, or leaves it for a while to nobody.
--
-- KEYS[1]  the key
-- ARGV     1 owner, 2 ms to keep the key taken, 3 what it holds then
-- answer   {'ok'} or {'lost'}
--
-- A server out of memory accepts the PEXPIRE, and after it the SET.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return {'lost'}
end
if tonumber(ARGV[2]) > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[2])
else
  redis.call('DEL', KEYS[1])
end
return {'ok'}
