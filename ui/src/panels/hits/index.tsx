export function Hits() {
  return <div className="fill" data-testid="panel-hits" />
}
