-- Acquire for an unusual claim of a free key, for a key of which but a token is left, and
-- for a finished record. What it reads is flat, for acquire.lua.
--
-- after    clock.lua (key, stamp, OK, DONE), free.lua (short),
--          look.lua (us, now, EXCLUSIVE, STEP, isString, fields, beyond)
-- KEYS[1], ARGV and answer are those of free.lua

local flat
if ARGV[9] then
  -- Before all else: a value can be long, and is read only if it is asked for.
  local finished, answer
  if redis.call('TYPE', key).ok == 'hash' then
    finished = redis.call('HGET', key, 'r')
  else
    flat = fields()
    for i = 1, #flat, 2 do
      finished = flat[i] == 'r' and flat[i + 1] or finished
      answer = flat[i] == 'v' and flat[i + 1] or answer
    end
  end
  if finished then
    local deadline, attempt = string.match(finished, '^(%d+) (%d+) 1 ')
    if deadline and tonumber(deadline) > now then
      return {DONE, tonumber(attempt), tonumber(deadline) - now, answer or redis.call('HGET', key, 'v')}
    end
  end
end
flat = flat or fields()
if #flat == 0 and not ARGV[5] then
  -- The server refused the SET of free.lua: this one raises its error (OOM, READONLY, NOPERM).
  redis.call('SET', key, short, 'NX', 'PX', ARGV[4])
  return stamp
end
local mine = stamp .. ' ' .. ARGV[4] .. ' ' .. ARGV[3]
if isString and #flat == 2 and flat[1] == 't' and not ARGV[5] then
  -- Of a grant that is over only its tokens are left.
  local token = flat[2] + STEP
  if token > us then
    redis.call('SET', key, 'f\th:' .. ARGV[2] .. ' ' .. mine .. ' ' .. EXCLUSIVE .. string.format('\tt %.0f', token),
      'PX', beyond(ARGV[4], token))
    return token
  end
  redis.call('SET', key, short, 'PX', ARGV[4])
  return stamp
end
if #flat == 0 then
  local field = 'h:' .. ARGV[2]
  local token, ms = us, ARGV[4]
  if ARGV[5] ~= EXCLUSIVE then
    token = 0
    redis.call('HSET', key, field, mine .. ' ' .. ARGV[5])
  elseif tonumber(ARGV[8]) > us then
    token = tonumber(ARGV[8])
    ms = beyond(ms, token)
    redis.call('HSET', key, field, mine .. ' ' .. ARGV[5], 't', ARGV[8])
  else
    redis.call('HSET', key, field, mine)
  end
  local answer = token
  if ARGV[9] then
    redis.call('HSET', key, 'r', now + ARGV[10] .. ' 1 0 ' .. ARGV[2], 'v', ARGV[9])
    ms = math.max(ms, ARGV[10])
    answer = {OK, token, ARGV[3], 1, tonumber(ARGV[10])}
  end
  local done = redis.pcall('PEXPIRE', key, ms)
  if type(done) == 'table' then
    -- Without the right to do this: better no key than one without an end.
    redis.pcall('DEL', key)
    return done
  end
  return answer
end
