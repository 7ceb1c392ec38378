/** The list of runs, and how to start one. */
export function Runs() {
  return <div className="fill" data-testid="panel-runs" />
}
