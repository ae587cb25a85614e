-- What settles the most releases, see acquire_shortcuts.lua. KEYS, ARGV and the answers are
-- those of release.lua.

local value = redis.call('GET', key)
local short = value and string.match(value, '^%d+ %S+ (%S+)$')
if short == ARGV[2] and not ARGV[5] then
  local ahead = ARGV[4] ~= '' and ARGV[4] - stamp
  if ahead and ahead < 0 then
    redis.call('DEL', key)
    return OK
  end
  -- The clock has not passed the tokens that were used. They stay until then, as the last of
  -- the 64 of a grant, so that the next grant has a later one; the hold is gone.
  if ahead and redis.pcall('SET', key, string.format('f\tt %.0f', ARGV[4] - 63), 'PX', math.ceil(ahead / 1000) + 2).ok then
    return OK
  end
end

if ARGV[9] and value and ARGV[8] ~= '0' and ARGV[5] == '0' then
  -- A run that is all there is, and whose tokens the clock has passed.
  local held, since, ms, token =
    string.match(value, '^f\tr %d+ %d+ %d [^\t]*\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tv ')
  if held == ARGV[2] and us - since < ms * 1000 and us >= tonumber(since)
    and ARGV[4] ~= '' and us - 63 > math.max(token, ARGV[4]) and ARGV[4] - token >= 0
    and redis.pcall('SET', key, ARGV[9], 'PX', ARGV[8]).ok then
    return OK
  end
end

if not ARGV[5] and value then
  -- A hold with waiters beside it, where the first can be granted the key by message. This
  -- does the same as waiters.lua, which has the reasons, in half the time.
  local held, since, ms, last, waits =
    string.match(value, '^f\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tw (\n[^\t]*)$')
  if held == ARGV[2] and us - since < ms * 1000 and us >= tonumber(since)
    and not string.find(waits, '\n' .. held .. ' ', 1, true) then
    -- The first line of the list: an exclusive claim, of kind 4 or 5.
    local other, deadline, owner, id, rest =
      string.match(waits, '^\n(%S+) (%d+) [45] 2147483647 2147483647 (%S+) (%S+)\n(.*)$')
    local age = other and WAITER_LIFE - (deadline - now)
    local channel = string.match(ARGV[1], '^%a+ %a* %S+ (.*)$')
    if age and age >= 0 and age <= ASKED and tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel .. id)[2] or 0) > 0 then
      local token = math.max(math.max(last, (tonumber(ARGV[4]) or 0) - 63) + 64, us)
      local digits, life = string.format('%.0f', token), age + WINDOW
      local next = 'f\th:' .. other .. ' ' .. stamp .. ' ' .. life .. ' ' .. owner .. ' 2147483647\tt ' .. digits
      if rest ~= '' then
        next = next .. '\tw \n' .. rest
      end
      local ends = math.max(rest ~= '' and WAITER_LIFE or life, math.ceil((token + 63 - us) / 1000) + 1)
      if redis.pcall('SET', key, next, 'PX', ends).ok then
        local got = redis.pcall('PUBLISH', channel .. id, key .. ' ' .. other .. '\n' .. deadline .. ' ' .. digits .. ' ' .. life)
        if type(got) == 'number' and got > 0 then
          return OK
        end
        -- No process has heard it. What follows goes on with the value as it was.
      end
    end
  end
end
