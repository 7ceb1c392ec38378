export default function Graph() {
  return <div className="fill" data-testid="panel-graph" />
}
