-- Fleet @FLEET@, by `inflight render lua`: a filter for Envoy that refuses clients as they begin, by their
-- first call, while what Prometheus answers is above a limit. No server sees a call that is refused; calls
-- of those who are in already are not looked at. It judges at any size of the fleet: whether that can still
-- grow is not known here.
-- What is not one plain number of this moment is unknown, and NaN, which is not above anything, is never
-- taken for little.
local FIRST_CALLS = {
  @FIRST_CALLS@
}
local LIMIT = @LIMIT@
-- Whether clients pass while the load is unknown. Envoy lets a call pass when a filter fails, so that nothing
-- here may fail.
local FAIL_OPEN = @FAIL_OPEN@
local TIMEOUT_MS = @TIMEOUT_MS@
-- An answer older than this comes from a cache, or from a machine whose clock is wrong.
local AGE_MAX_SECONDS = 60
local BYTES_MAX = 65536
local AUTHORITY = @AUTHORITY@
local API = @API@
local QUERY = @QUERY@

local FULL, UNKNOWN = "the load is above the limit", "the load is unknown"
-- When to come again, each as whole seconds, as milliseconds, and as google.rpc.Status with RetryInfo of who is
-- refused for either reason. Several, so that those refused together do not come back together.
local AGAIN = {
  @AGAIN@
}

local PATH = API .. "?timeout=" .. TIMEOUT_MS .. "ms&query=" .. QUERY:gsub("[^%w%-%._~]", function(byte)
  return string.format("%%%02X", byte:byte())
end)

-- The number in an answer, or nothing and why.
local function number_in(body)
  if #body > BYTES_MAX then return nil, "an answer of " .. #body .. " bytes" end
  if not body:find("^%s*{.*}%s*$") then return nil, "no whole JSON" end
  if not body:find('"status"%s*:%s*"success"') then return nil, "no success" end
  local _, rows = body:gsub('"value"%s*:%s*%[', "")
  if rows > 1 then return nil, "several rows" end
  -- [TIME, "TEXT"], of a vector or a scalar; the time may be whole seconds.
  local pair = '%s*:%s*%[%s*([%d%.eE%+%-]+)%s*,%s*"([^"]*)"%s*%]'
  local at, text = body:match('"value"' .. pair)
  if not at then at, text = body:match('"result"' .. pair) end
  at = tonumber(at or "")
  if not at then return nil, "no row" end
  local age = os.time() - at
  if age > AGE_MAX_SECONDS then return nil, string.format("an answer of %d s ago", age) end
  if text == "+Inf" then return math.huge end
  -- tonumber alone takes blanks, hexadecimal and NaN.
  if not text:find("^%-?%d+%.?%d*[eE]?[%+%-]?%d*$") then return nil, "no number: " .. text end
  local number = tonumber(text)
  if not number then return nil, "no number: " .. text end
  return number
end

local function ask(handle)
  local question = { [":method"] = "GET", [":path"] = PATH, [":authority"] = AUTHORITY }
  local headers, body = handle:httpCall(@CLUSTER@, question, nil, TIMEOUT_MS)
  if headers[":status"] ~= "200" then return nil, "status " .. tostring(headers[":status"]) end
  return number_in(body or "")
end

local function refuse(handle, is_full)
  local is_grpc = (handle:headers():get("content-type") or ""):find("application/grpc", 1, true) == 1
  local message, again = is_full and FULL or UNKNOWN, AGAIN[math.random(#AGAIN)]
  local answer = { ["x-inflight-reason"] = is_full and "overloaded" or "load_unknown", ["retry-after"] = again[1] }
  if not is_grpc then
    answer[":status"], answer["content-type"] = is_full and "429" or "503", "text/plain"
    handle:respond(answer, message .. "\n")
    return
  end
  -- Trailers only, which every gRPC client reads; a body would replace grpc-message.
  answer[":status"], answer["content-type"] = "200", "application/grpc"
  answer["grpc-status"], answer["grpc-message"] = is_full and "8" or "14", message
  answer["grpc-retry-pushback-ms"] = again[2]
  answer["grpc-status-details-bin"] = is_full and again[3] or again[4]
  handle:respond(answer)
end

function envoy_on_request(handle)
  local path = (handle:headers():get(":path") or ""):match("^[^?]*")
  if not FIRST_CALLS[path] then return end
  local ran, number, why = pcall(ask, handle)
  if not ran then number, why = nil, number end
  if number then
    if number > LIMIT then refuse(handle, true) end
    return
  end
  handle:logWarn("the load is unknown: " .. tostring(why))
  if not FAIL_OPEN then refuse(handle, false) end
end
