-- The shortcuts settle most releases, see acquire_shortcuts.lua. release.lua describes
-- KEYS, ARGV and the answers. It uses `value`, `last` and `short`, and release_relay.lua
-- the first two.

local value, last = redis.call('MGET', KEYS[1])[1], tonumber(ARGV[4])
local short = value and string.match(value, '^%d+ %S+ (%S+)$')
if short == ARGV[2] and last and not ARGV[5] then
  if last < us then
    redis.call('DEL', KEYS[1])
    return OK
  end
  -- The clock has not passed the used tokens. Until it has passed them, the key keeps
  -- the last used token, as the last of the 64 tokens of a grant. So the next grant has
  -- a higher token.
  local ms = math.ceil((last - us) / 1000) + 2
  if redis.pcall('SET', KEYS[1], string.format('f\tt %.0f', last - 63), 'PX', ms).ok then
    return OK
  end
end

if value and last and ARGV[9] and ARGV[8] ~= '0' and ARGV[5] == '0' then
  -- A key with only a run, and with tokens that the clock has passed.
  local held, since, ms, token =
    string.match(value, '^f\tr %d+ %d+ %d [^\t]*\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tv ')
  if held == ARGV[2] and us - since >= 0 and us - since < ms * 1000
    and us - last > 63 and last - token >= 0
    and redis.pcall('SET', KEYS[1], ARGV[9], 'PX', ARGV[8]).ok then
    return OK
  end
end

if not value and not ARGV[5] then
  -- A reader or permit in a crowd without waiters, the only lease of an owner of the same
  -- name. glance and settle in crowd.lua do the same, and contain the reasons.
  local hold, list = 'h:' .. ARGV[2], 'o:' .. ARGV[2]
  local got = redis.call('HMGET', KEYS[1], 'n', 't', 'w', 'k:' .. ARGV[2], 'd:' .. ARGV[2], list, hold)
  local written, first, free, count, sum, kept = string.match(got[1] or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) *$')
  local since, ms, owner, weight = string.match(got[7] or '', '^(%d+) (%d+) (%S+) (%d+)$')
  if kept and owner == ARGV[2] and got[6] == ' ' .. owner .. ' ' and not (got[3] or got[4] or got[5])
    and us - written >= 0 and first + LATE > now and count - 1 > CROWD / 2 and weight ~= '2147483647'
    and math.floor(since / 1000) + ms > now and us - (got[2] or 0) > 63
    and type(redis.pcall('HDEL', KEYS[1], '')) == 'number' then
    local n = string.format('%s %s %s %.0f %.0f %-32s', stamp, first, free, count - 1, sum - weight, kept)
    if type(redis.pcall('HSET', KEYS[1], 'n', n)) == 'number' then
      redis.call('HDEL', KEYS[1], hold, list)
      return OK
    end
  end
end
