-- A lock that is shared with Redisson's RLock, and the time. The key is a hash that
-- expires. Redisson grants it to a thread if it is absent, or has the thread's field,
-- which counts its entries: "<uuid>:<thread>" -> "1". Here each hold has a field of its
-- own, the lease, so that a claim that is sent twice counts once:
--   <lease> -> "<end> <owner> <token>"  the end in ms on the clock of this server, and the
--              first token of the grant, 0 without one: "1764088692123 O1 0". Without an
--              owner it is a hold that was released and stays for a while: kept:<lease> ->
--              "1764088692123  0"
-- The key lasts as long as the last of these holds. All of them are of one owner, or
-- stay.

local OK, BUSY, LOST = 0, 1, 2
local time = redis.call('TIME')
local now = math.floor(time[1] * 1000 + time[2] / 1000)

-- read returns the hold in a field of ours, or nil.
local function read(value)
  local ends, owner, token = string.match(value or '', '^(%d+) (%S*) (%d+)$')
  if ends then
    return {ends = tonumber(ends), owner = owner, token = tonumber(token)}
  end
end

local function write(lease, ends, owner, token)
  redis.call('HSET', KEYS[1], lease, string.format('%.0f %s %.0f', ends, owner, token))
end

-- last makes the key last for at least ms. It returns an error of the server, or nil.
local function last(ms)
  local left = redis.pcall('PTTL', KEYS[1])
  if type(left) == 'number' and left < ms then
    left = redis.pcall('PEXPIRE', KEYS[1], string.format('%.0f', ms))
  end
  return type(left) == 'table' and left or nil
end

-- few returns whether the key has as few fields as a lock has.
local function few()
  return redis.call('HLEN', KEYS[1]) <= 1000
end
