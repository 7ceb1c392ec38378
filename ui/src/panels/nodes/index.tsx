export function Nodes() {
  return <div className="fill" data-testid="panel-nodes" />
}
