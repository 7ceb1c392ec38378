import { Button, Group, Loader, Progress, SegmentedControl, Select, Skeleton, Text } from '@mantine/core'
import { IconArrowsDiff, IconCircleX } from '~/parts/icons'
import { lazy, Suspense } from 'react'
import { useTranslation } from 'react-i18next'
import { ActionButton } from '~/parts/ActionButton'
import { Notice } from '~/parts/Notice'
import { count } from '~/parts/numbers'
import { useView, type ComparePart } from '~/state/store'
import { Banner, BannerSkeleton } from './Banner'
import classes from './compare.module.css'
import { useCompareState } from './compareState'
import { Given } from './Given'
import { Operators } from './Operators'
import { isUnfinished, useComparing, useComparison, useShown, type Shown } from './queries'
import type { Comparison, RankComparison } from '~/api/types'
import { compareTexts } from './texts'
import { Unmatched } from './Unmatched'

const Values = lazy(() => import('./Values'))
const Losses = lazy(() => import('./Losses'))

/** The comparison of the run shown with another one: verdict, operators, values, unmatched nodes, losses. */
export default function Compare() {
  const { t } = useTranslation(compareTexts)
  const other = useView((view) => view.other)
  const { data: comparison, error } = useComparison()
  const shown = useShown()
  let content
  if (other === '') content = <Nothing />
  else if (error && !comparison) content = <Failed message={error.message} />
  else if (!comparison) content = <Waiting />
  else if (isUnfinished(comparison)) content = <Running comparison={comparison} />
  else if (shown && comparison.state === 'done') content = <Done shown={shown} />
  else content = <Failed message={comparison.message || t('closed')} />
  return (
    <div className="fill" data-testid="panel-compare" data-state={comparison?.state}>
      {content}
    </div>
  )
}

function Nothing() {
  const { t } = useTranslation(compareTexts)
  return (
    <Notice icon={<IconArrowsDiff size={32} />} title={t('empty')} testId="compare-empty">
      <Text c="var(--quiet)" ta="center" maw={560}>
        {t('emptyText')}
      </Text>
      <ActionButton id="compare.with" icon={<IconArrowsDiff size={14} />} withLabel isPrimary />
    </Notice>
  )
}

function Waiting() {
  return (
    <>
      <BannerSkeleton />
      <Skeleton flex={1} mt={4} radius={0} />
    </>
  )
}

/** The progress of the comparison, with a button to cancel it. */
function Running({ comparison }: { comparison: Comparison }) {
  const { t } = useTranslation(compareTexts)
  const { cancel } = useComparing()
  const { a, b, what, done, total } = comparison
  const title = comparison.state === 'waiting' ? t('waiting') : t('running', { a: a.title, b: b.title })
  return (
    <Notice icon={<Loader size="sm" />} title={title} testId="compare-running">
      <div style={{ width: 360 }}>
        <Progress
          value={total > 0 ? (100 * done) / total : 100}
          animated={total === 0}
          aria-label={what || title}
        />
        <Text c="var(--quiet)" ta="center" mt={4} h={18}>
          {what}
          {total > 0 && ` · ${count(done)} / ${count(total)}`}
        </Text>
      </div>
      <Button
        variant="default"
        loading={cancel.isPending}
        data-testid="compare-cancel"
        onClick={() => cancel.mutate(comparison.id)}
      >
        {t('cancel')}
      </Button>
    </Notice>
  )
}

function Failed({ message }: { message: string }) {
  const { t } = useTranslation(compareTexts)
  const set = useView((view) => view.set)
  const { again } = useComparing()
  return (
    <Notice
      icon={<IconCircleX size={36} stroke={1.4} color="var(--hit)" />}
      title={t('failed')}
      testId="compare-failed"
    >
      <Text c="var(--quiet)" ta="center" maw={620} style={{ overflowWrap: 'anywhere' }}>
        {message}
      </Text>
      <Group mt="xs">
        <Button loading={again.isPending} onClick={() => again.mutate()}>
          {t('action.again')}
        </Button>
        <Button variant="default" onClick={() => set({ dialog: 'compare' })}>
          {t('other')}
        </Button>
      </Group>
    </Notice>
  )
}

/** Return the part to show first: the one that tells most about the finding. */
export function firstPart(result: RankComparison): ComparePart {
  return result.steps.length === 0 && result.tensors.length > 0 ? 'given' : 'operators'
}

function Done({ shown }: { shown: Shown }) {
  const { t } = useTranslation(compareTexts)
  const chosen = useView((view) => view.part)
  const set = useView((view) => view.set)
  const { result, comparison } = shown
  const part = chosen ?? firstPart(result)
  const { operators, operators_b, parameters, parameters_b } = result.unmatched
  const totals: Partial<Record<ComparePart, number>> = {
    given: result.differing,
    unmatched: operators + operators_b + parameters + parameters_b,
  }
  const parts = (['operators', 'values', 'given', 'unmatched', 'losses'] as const).filter(
    (name) => name !== 'given' || result.tensors.length > 0 || name === part,
  )
  return (
    <>
      <Banner shown={shown} />
      <div className={`heading ${classes['bar'] ?? ''}`}>
        <SegmentedControl
          aria-label={t('partsLabel')}
          data-testid="compare-parts"
          value={part}
          data={parts.map((value) => ({
            value,
            label: t(`parts.${value}`, { total: count(totals[value] ?? 0) }),
          }))}
          onChange={(value) => set({ part: value })}
        />
        <StepChoice shown={shown} />
        <span className={classes['names']} title={`${comparison.a.title}\n${comparison.b.title}`}>
          <Name side="a" name={comparison.a.title} />
          <Name side="b" name={comparison.b.title} />
        </span>
      </div>
      <Suspense fallback={<Skeleton flex={1} radius={0} />}>
        {part === 'operators' && <Operators shown={shown} />}
        {part === 'values' && <Values shown={shown} />}
        {part === 'given' && <Given result={result} />}
        {part === 'unmatched' && <Unmatched result={result} />}
        {part === 'losses' && <Losses comparison={comparison} />}
      </Suspense>
    </>
  )
}

function Name({ side, name }: { side: 'a' | 'b'; name: string }) {
  const { t } = useTranslation(compareTexts)
  return (
    <span>
      <b>{t(side)}</b> {name}
    </span>
  )
}

/** The choice of the step whose operators are listed, and whose errors colour tree and graph. */
function StepChoice({ shown: { result, step } }: { shown: Shown }) {
  const { t } = useTranslation(compareTexts)
  if (step === null) return null
  return (
    <Select
      aria-label={t('stepLabel')}
      data-testid="compare-step"
      w={104}
      allowDeselect={false}
      searchable={result.steps.length > 20}
      value={String(step)}
      data={result.steps.map((number) => ({ value: String(number), label: t('step', { step: number }) }))}
      onChange={(value) => useCompareState.setState({ step: Number(value) })}
    />
  )
}
