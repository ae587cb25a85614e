-- Handover gives the owner's plain key to another owner. Nobody is known to
-- wait, so one that yields only deletes it.
--
-- KEYS[1]  the key
-- ARGV     1 'handover', 2 owner, 3 the next one, 4 TTL in ms, 5 flags: y who
--          waits comes first
-- answer   0       granted
--          {1, 0}  released, but not granted
--          {2}     it was not held, and nothing has changed
--
-- A server out of memory accepts the PEXPIRE, and after it the SET.

if redis.call('GET', KEYS[1]) ~= ARGV[2] then
  return {2}
end
if ARGV[5] == 'y' then
  redis.call('DEL', KEYS[1])
  return {1, 0}
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4])
return 0
