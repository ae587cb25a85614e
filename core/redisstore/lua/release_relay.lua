-- The relay settles most releases of a key with waiters. This file follows
-- release_shortcuts.lua, and uses the locals of that file.

if value and not ARGV[5] then
  -- The key has one hold and waiters, and the first waiter can be granted the key by
  -- message. This code does the same as waiters.lua, which contains the reasons, in
  -- three quarters of the time.
  local held, since, ms, token, waits =
    string.match(value, '^f\th:(%S+) (%d+) (%d+) %S+ 2147483647\tt (%d+)\tw (\n[^\t]*)$')
  if held == ARGV[2] and us - since >= 0 and us - since < ms * 1000
    and not string.find(waits, '\n' .. held .. ' ', 1, true) then
    -- The first line of the list must be an exclusive claim of kind 4 or 5.
    local other, deadline, owner, id, rest =
      string.match(waits, '^\n(%S+) (%d+) [45] 2147483647 2147483647 (%S+) (%S+)\n(.*)$')
    local age = other and WAITER_LIFE - (deadline - now)
    local channel = string.match(ARGV[1], '^%a+ %a* %S+ (.*)$')
    if age and age >= 0 and age <= ASKED and tonumber(redis.pcall('PUBSUB', 'NUMSUB', channel .. id)[2] or 0) > 0 then
      local first = math.max(token + 64, (last or 0) + 1, us)
      local digits, life = string.format('%.0f', first), string.format('%.0f', age + WINDOW)
      local next = 'f\th:' .. other .. ' ' .. stamp .. ' ' .. life .. ' ' .. owner .. ' 2147483647\tt ' .. digits
      if rest ~= '' then
        next = next .. '\tw \n' .. rest
      end
      local ends = math.max(rest ~= '' and WAITER_LIFE or age + WINDOW, math.ceil((first + 63 - us) / 1000) + 1)
      if redis.pcall('SET', KEYS[1], next, 'PX', ends).ok then
        local got = redis.pcall('PUBLISH', channel .. id, KEYS[1] .. ' ' .. other .. '\n' .. deadline .. ' ' .. digits .. ' ' .. life)
        if type(got) == 'number' and got > 0 then
          return OK
        end
        -- No process has received the message. The rest of the script uses the old
        -- value.
      end
    end
  end
end
