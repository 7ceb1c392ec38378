import type { components } from './schema'

/** All types of the API; a panel names the types that only it uses. */
export type Schemas = components['schemas']

export type Capabilities = Schemas['Capabilities']
export type Command = Schemas['Command']
export type AddedError = Schemas['AddedError']
export type AddedErrors = Schemas['AddedErrors']
export type ComparedLosses = Schemas['ComparedLosses']
export type ComparedOperator = Schemas['ComparedOperator']
export type ComparedOperatorPage = Schemas['ComparedOperatorPage']
export type ComparedRun = Schemas['ComparedRun']
export type ComparedSlot = Schemas['ComparedSlot']
export type ComparedStatistics = Schemas['ComparedStatistics']
export type ComparedTensor = Schemas['ComparedTensorRecord']
export type Comparison = Schemas['ComparisonRecord']
export type Condition = Schemas['ConditionRecord']
export type ConditionParameter = Schemas['ParameterRecord']
export type Diagnosis = Schemas['DiagnosisRecord']
export type DumpRecord = Schemas['DumpRecord']
export type ErrorDetail = Schemas['ErrorDetail']
export type ElementRecord = Schemas['ElementRecord']
export type Facts = Schemas['FactsRecord']
export type FindingRecord = Schemas['FindingRecord']
export type Frame = Schemas['Frame']
export type GraphEdge = Schemas['GraphEdge']
export type GraphLevel = Schemas['GraphLevel']
export type GraphRecord = Schemas['GraphRecord']
export type Histogram = Schemas['HistogramRecord']
export type HitPage = Schemas['HitPage']
export type HitRecord = Schemas['HitRecord']
export type NodeHits = Schemas['NodeHits']
export type NodeRecord = Schemas['NodeRecord']
export type Origin = Schemas['OriginRecord']
export type Overview = Schemas['Overview']
export type OverviewRow = Schemas['OverviewRow']
export type OverviewStatistic = Overview['statistic']
export type RankComparison = Schemas['RankComparison']
export type RankRecord = Schemas['RankRecord']
export type RelationGraph = Schemas['RelationGraph']
export type SearchPage = Schemas['SearchPage']
export type SearchRecord = Schemas['SearchRecord']
export type SearchResult = Schemas['SearchResult']
export type ServerEvent = Schemas['Event']
export type ServerRecord = Schemas['ServerRecord']
export type Session = Schemas['SessionRecord']
export type SessionState = Schemas['State']
export type Slot = Schemas['Slot']
export type SourceFile = Schemas['SourceFile']
export type SourcePage = Schemas['SourcePage']
export type Statistics = Schemas['Statistics']
export type StatisticsPage = Schemas['StatisticsPage']
export type StatisticsRow = Schemas['StatisticsRow']
export type StepSpan = Schemas['StepSpan']
export type TensorDifference = Schemas['TensorDifferenceRecord']
export type TensorRecord = Schemas['TensorRecord']
export type TensorStatistics = Schemas['TensorStatisticsRecord']
export type Trial = Schemas['TrialResult']
export type Timeline = Schemas['Timeline']
export type TreeEntry = Schemas['TreeEntry']
export type TreePage = Schemas['TreePage']
export type UnmatchedPage = Schemas['UnmatchedPage']
export type Watchpoint = Schemas['WatchpointRecord']
export type WatchpointChange = Schemas['WatchpointChange']
export type WatchpointSpec = Schemas['WatchpointSpec']

/** Which value of a tensor: at this step, one step before, or the difference of the two. */
export type Which = 'current' | 'previous' | 'difference'

/** Data of a `progress` event. */
export interface Progress {
  what: string
  done: number
  total: number
}

/** Data of a `message` event. */
export interface Message {
  level: 'info' | 'warning' | 'error'
  text: string
}
