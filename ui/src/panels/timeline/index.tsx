export function Timeline() {
  return <div className="fill" data-testid="panel-timeline" />
}
