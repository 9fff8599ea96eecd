-- ARGV: 4 the offset after which it reads, or nothing, 5 the epoch in which that is a message, or nothing, 6 most messages,
-- 7 most bytes
local after, most, room = tonumber(ARGV[4]), tonumber(ARGV[6]), tonumber(ARGV[7])
if after and ARGV[5] == epoch and after > last then
  -- The server has lost messages unnoticed.
  renew()
end
local answer = { 'page', epoch, text(last), '1' }
local function push(offset, key, data)
  for _, part in ipairs({ text(offset), key and '1' or '0', key or '', data }) do answer[#answer + 1] = part end
  most, room = most - 1, room - #data
end

if kind == 'latest' then
  local from, at = after and '(' .. text(after) or '-inf', 0
  repeat
    local part = redis.call('ZRANGEBYSCORE', KEYS[3], from, '+inf', 'WITHSCORES', 'LIMIT', at, 16)
    for i = 1, #part, 2 do
      if most <= 0 or room <= 0 then
        answer[4] = '0'
        return answer
      end
      local data = redis.call('HGET', KEYS[4], part[i])
      -- The empty key is none.
      if data then push(tonumber(part[i + 1]), part[i] ~= '' and part[i] or nil, data) end
    end
    at = at + 16
  until #part < 32
  return answer
end

local from = after and '(' .. id_of(after) or '-'
local before = after and after < last and last or 0
repeat
  local part = redis.call('XRANGE', KEYS[2], from, '+', 'COUNT', 16)
  for _, entry in ipairs(part) do
    if most <= 0 or room <= 0 then
      answer[4] = '0'
      return answer
    end
    local fields = {}
    for i = 1, #entry[2], 2 do fields[entry[2][i]] = entry[2][i + 1] end
    -- Messages that others have added have no place among ours.
    if fields.data and fields.before then
      if #answer == 4 then before = tonumber(fields.before) end
      if after and before > after then return { 'late', epoch, text(last) } end
      push(offset_of(entry[1]), fields.key, fields.data)
    end
    from = '(' .. entry[1]
  end
until #part < 16
if after and before > after then return { 'late', epoch, text(last) } end
return answer
