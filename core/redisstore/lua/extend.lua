-- Extend makes a live hold last for its TTL from now, never less than before.
--
-- after    clock.lua (key, stamp, OK, LOST),
--          look.lua (us, now, EXCLUSIVE, fields, joined, put, beyond)
-- KEYS[1]  the key
-- ARGV     1 'extend', 2 lease, 3 TTL in ms
-- answer   OK      it is held
--          {LOST}  it is not
--
-- A server out of memory accepts a PEXPIRE, and after it all else.

-- whole is a string as fields, nil of a hash.
local ttl, kind, whole = tonumber(ARGV[3]), redis.call('TYPE', key).ok, nil
if kind == 'string' then
  local value = redis.call('GET', key)
  -- What most holds are that were extended before.
  local lease, since, ms, owner, token = string.match(value, '^f\th:(%S+) (%d+) (%d+) (%S+) 2147483647\tt (%d+)$')
  if lease then
    local left = math.min(tonumber(since), us) + ms * 1000 - us
    if lease ~= ARGV[2] or left <= 0 then
      return {LOST}
    end
    if left < ttl * 1000 then
      put('f\th:' .. lease .. ' ' .. stamp .. ' ' .. ARGV[3] .. ' ' .. owner .. ' 2147483647\tt ' .. token, beyond(ARGV[3], token))
    end
    return OK
  end
  whole = fields(value)
end
local field = 'h:' .. ARGV[2]
local function get(name)
  if not whole then
    return redis.call('HGET', key, name)
  end
  for i = 1, #whole, 2 do
    if whole[i] == name then
      return whole[i + 1]
    end
  end
end
local value = get(field)
if not value then
  return {LOST}
end
local mid = string.find(value, ' ', 1, true)
local stop = string.find(value, ' ', mid + 1, true)
local deadline = math.min(tonumber(string.sub(value, 1, mid - 4)), now) + string.sub(value, mid + 1, stop - 1)
if deadline <= now then
  return {LOST}
end
if now + ttl > deadline then
  local set = {field, stamp .. ' ' .. ARGV[3] .. string.sub(value, stop)}
  if not string.find(value, ' ', stop + 1, true) then
    -- It will not tell the token any more.
    local token, last = string.sub(value, 1, mid - 1), get('t')
    if last and tonumber(last) > tonumber(token) then
      token = last
    end
    set = {field, set[2] .. ' ' .. EXCLUSIVE, 't', token}
  end
  ttl = math.max(redis.call('PTTL', key), ttl)
  if whole then
    put(joined(whole, set, {}), ttl)
  else
    redis.call('PEXPIRE', key, ttl)
    redis.call('HSET', key, unpack(set))
  end
end
return OK
