export function Inspector() {
  return <div className="fill" data-testid="panel-inspector" />
}
