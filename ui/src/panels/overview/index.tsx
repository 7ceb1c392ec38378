export default function Overview() {
  return <div className="fill" data-testid="panel-overview" />
}
