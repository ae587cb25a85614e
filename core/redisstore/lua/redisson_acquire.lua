-- Acquire tries once to admit a claim. redisson.lua describes the key.
--
-- KEYS[1]  the key
-- KEYS[2]  the counter of RFencedLock; only for a claim that needs a token
-- ARGV     1 'acquire', 2 lease, 3 owner, 4 TTL in ms, 5 the owner to join or ''; only for
--          a claim that needs a token: 6 the least token, 7 the number of tokens of a grant
-- answer   {0, token, owner}  granted
--          {1, ms}            busy; the key expires in ms, or never if ms is 0
--
-- The HSET is the last command that can be refused. So after a refusal (NOPERM, OOM) all
-- holds are as before. A counted token that was not granted is harmless.

local mine, joined, others, kept
local fields = few() and redis.call('HGETALL', KEYS[1]) or {'', ''} -- another program's hash: busy
for i = 1, #fields, 2 do
  local hold = read(fields[i + 1])
  if hold and hold.ends <= now then
    redis.call('HDEL', KEYS[1], fields[i])
  elseif not hold then
    others = true
  elseif hold.owner == '' then
    kept = true
  elseif fields[i] == ARGV[2] then
    mine = hold
  elseif hold.owner == ARGV[3] or hold.owner == ARGV[5] then
    if not joined or hold.token > joined.token then
      joined = hold
    end
  else
    others = true
  end
end
local of = mine or not kept and joined
if not of and (others or kept) then
  return {BUSY, math.max(redis.call('PTTL', KEYS[1]), 0)}
end
local owner, token = of and of.owner or ARGV[3], of and of.token or 0
if ARGV[6] and token < tonumber(ARGV[6]) then
  token = math.max(tonumber(redis.call('GET', KEYS[2]) or 0) + 1, tonumber(ARGV[6]))
  if token > 9007199254740992 - ARGV[7] then
    return redis.error_reply('ERR the counter of tokens is at its end, 2^53')
  end
  redis.call('SET', KEYS[2], string.format('%.0f', token + ARGV[7] - 1))
end
if not of then
  -- The key is absent, so this SET changes nothing. A server that is out of memory refuses
  -- it, and would accept the HSET after the PEXPIRE of lifetime.
  redis.call('SET', KEYS[1], '', 'XX')
end
local left, ms = lifetime(), tonumber(ARGV[4])
write(ARGV[2], math.max(now + ms, mine and mine.ends or 0), owner, token)
lastFor(ms, left)
return {OK, token, owner}
