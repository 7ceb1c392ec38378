export function Sources() {
  return <div className="fill" data-testid="panel-sources" />
}
