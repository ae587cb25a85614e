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
