import type { SearchResult, Trial } from '~/api/types'
import type { Ranges } from './Chart'

/** Whether a trial is within all ranges that the user has drawn on axes. */
export function inRanges(trial: Trial, result: SearchResult, ranges: Ranges): boolean {
  return Object.entries(ranges).every(([axis, intervals]) => {
    if (intervals.length === 0) return true
    const at = positionOn(axis, trial, result)
    return at !== undefined && intervals.some(([low, high]) => low <= at && at <= high)
  })
}

function positionOn(axis: string, trial: Trial, result: SearchResult): number | undefined {
  const colon = axis.indexOf(':')
  const name = axis.slice(colon + 1)
  if (axis.startsWith('target:')) {
    return trial.values[result.targets.findIndex((target) => target.name === name)]
  }
  const value = trial.params[name]
  const parameter = result.parameters.find((other) => other.name === name)
  if (value === undefined || parameter === undefined) return undefined
  return parameter.kind === 'choice' ? parameter.choices.indexOf(value) : Number(value)
}
