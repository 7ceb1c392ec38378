export function Watchpoints() {
  return <div className="fill" data-testid="panel-watchpoints" />
}
