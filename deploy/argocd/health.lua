-- The health of all of Haulout's resources, for Argo CD, by the same rules as kstatus.
-- Argo CD itself shows an object that is being deleted as Progressing.
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end

local function is(type, value)
  return conditions[type] ~= nil and conditions[type].status == value
end

local function health(code, type)
  return {status = code, message = conditions[type].message or ""}
end

if obj.kind == "MaintenanceRecord" then
  return {status = "Healthy", message = "A record of what happened"}
end
if status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "Waiting for Haulout to read the latest change"}
end
if is("Stalled", "True") then
  return health("Degraded", "Stalled")
end
if is("Reconciling", "True") then
  return health("Progressing", "Reconciling")
end
if is("Ready", "True") then
  return health("Healthy", "Ready")
end
return {status = "Progressing", message = "Waiting for Haulout"}
