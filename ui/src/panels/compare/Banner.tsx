import { Skeleton } from '@mantine/core'
import {
  IconAlertOctagon,
  IconAlertTriangle,
  IconArrowsExchange,
  IconBinaryTree2,
  IconChevronDown,
  IconChevronUp,
  IconCircleCheck,
  IconClockHour4,
  IconRefresh,
  IconTable,
  IconX,
} from '~/parts/icons'
import { useTranslation } from 'react-i18next'
import { useSession } from '~/api/queries'
import { NodeLink } from '~/panels/origin/NodeLink'
import origin from '~/panels/origin/origin.module.css'
import { NodeLine } from '~/panels/origin/SourceLine'
import { ActionButton } from '~/parts/ActionButton'
import classes from './compare.module.css'
import { useFolded } from './compareState'
import { headOf } from './headOf'
import { errorText, numberText, operatorDistance } from './measures'
import type { Shown } from './queries'
import type { ComparedOperator, ComparedRun, RankComparison } from '~/api/types'
import { compareTexts } from './texts'
import { nodeOf } from './useCompareActions'

const SEVERITY = { same: 'same', different: 'error', 'not comparable': 'warning' } as const

/** The verdict, its basis, and what to do next. */
export function Banner({ shown }: { shown: Shown }) {
  const { t } = useTranslation(compareTexts)
  const { comparison, result } = shown
  const [isFolded] = useFolded()
  const { data: session } = useSession()
  const { first, verdict } = result
  const Icon = { same: IconCircleCheck, different: IconAlertOctagon, 'not comparable': IconAlertTriangle }[
    verdict
  ]
  return (
    <section
      className={`${origin['banner'] ?? ''} ${classes['banner'] ?? ''}`}
      data-severity={SEVERITY[verdict]}
      data-folded={isFolded}
      data-testid="compare-banner"
      data-verdict={verdict}
      aria-label={t('region')}
    >
      <div className={origin['icon']} aria-hidden>
        <Icon size={18} />
      </div>
      <div className={origin['body']}>
        <div className={origin['head']}>
          <Headline result={result} />
          {first && <NodeLine line={first.source ?? null} node={nodeOf(first, result.rank)} />}
          <span className={classes['atEnd']}>
            <ActionButton
              id="compare.fold"
              icon={isFolded ? <IconChevronDown size={16} /> : <IconChevronUp size={16} />}
            />
            <ActionButton id="compare.end" icon={<IconX size={16} />} />
          </span>
        </div>
        {!isFolded && (
          <>
            {first && result.finding !== 'another rank' && <First first={first} />}
            <Proof result={result} />
            <Notes result={result} runs={[comparison.a, comparison.b]} />
            <div className={origin['buttons']}>
              <ActionButton id="compare.node" icon={<IconBinaryTree2 size={14} />} withLabel />
              <ActionButton id="compare.values" icon={<IconTable size={14} />} withLabel />
              {first && first.step !== session?.step && (
                <ActionButton id="compare.step" icon={<IconClockHour4 size={14} />} withLabel />
              )}
              <ActionButton id="compare.swap" icon={<IconArrowsExchange size={14} />} withLabel />
              <ActionButton id="compare.again" icon={<IconRefresh size={14} />} withLabel />
            </div>
          </>
        )}
      </div>
    </section>
  )
}

/** A placeholder with the most likely height of the banner. */
export function BannerSkeleton() {
  const [isFolded] = useFolded()
  return <Skeleton height={isFolded ? 31 : 112} radius={0} style={{ flex: 'none' }} />
}

/** The verdict in one line; in the server's words if it does not concern an operator of this rank. */
function Headline({ result }: { result: RankComparison }) {
  const { t, i18n } = useTranslation(compareTexts)
  const { first, sentence, verdict } = result
  if (!first || result.finding === 'another rank') {
    const [head, rest] = i18n.language === 'en' ? headOf(sentence) : [t(`verdict.${verdict}`), sentence]
    return (
      <div className={classes['sentence']} aria-live="polite" data-testid="compare-sentence" title={sentence}>
        <strong>{head}</strong> <span className={classes['words']}>{rest}</span>
      </div>
    )
  }
  return (
    <div className={origin['sentence']} aria-live="polite" data-testid="compare-sentence" title={sentence}>
      <strong>{t('diverges', { step: first.step, phase: t(`phases.${first.phase}`) })}</strong>{' '}
      <NodeLink node={nodeOf(first, result.rank)} isStrong />
    </div>
  )
}

/** The distance at the first divergence, and the operator's name in B. */
function First({ first }: { first: ComparedOperator }) {
  const { t } = useTranslation(compareTexts)
  const distance = operatorDistance(first)
  const difference =
    distance.kind === 'number'
      ? t('relative', {
          value: distance.isLowerBound
            ? t('lowerBound', { value: errorText(distance.value) })
            : errorText(distance.value),
        })
      : t(distance.kind === 'unknown' ? 'nothingKnown' : distance.kind)
  const allowed = numberText(first.allowed)
  return (
    <div className={origin['values']} data-testid="compare-first">
      <span>{t('byItself', { difference, allowed })}</span>
      {first.name_b !== first.name && (
        <span className={classes['ending']} title={first.name_b}>
          <bdi className="mono">{t('inB', { name: first.name_b })}</bdi>
        </span>
      )}
    </div>
  )
}

/** How many of the inputs and weights of both runs agree. */
function Proof({ result }: { result: RankComparison }) {
  const { t } = useTranslation(compareTexts)
  const { inputs, inputs_that_agree, weights, weights_that_agree } = result.proof
  const parts = [
    ...(inputs > 0 ? [{ key: 'inputs', count: inputs, agree: inputs_that_agree }] : []),
    ...(weights > 0 ? [{ key: 'weights', count: weights, agree: weights_that_agree }] : []),
  ]
  return (
    <div className={origin['values']} data-testid="compare-proof">
      {parts.length === 0 && <span className={origin['quiet']}>{t('proof.none')}</span>}
      {parts.map(({ key, count, agree }) => (
        <span key={key} className={classes['proof']} data-agree={agree === count}>
          {agree === count ? (
            <IconCircleCheck size={14} aria-hidden />
          ) : (
            <IconAlertTriangle size={14} aria-hidden />
          )}
          {t(`proof.${key}`, { count, agree })}
        </span>
      ))}
      {parts.length > 0 && <span className={origin['quiet']}>{t('proof.before')}</span>}
      <span className={origin['quiet']}>{t('steps', { count: result.steps.length })}</span>
    </div>
  )
}

/** Notes that users need to interpret the verdict. */
function Notes({ result, runs }: { result: RankComparison; runs: readonly ComparedRun[] }) {
  const { t } = useTranslation(compareTexts)
  const notes = [...result.notes, ...runs.map((run) => run.note).filter(Boolean)]
  if (notes.length === 0) return null
  return (
    <ul
      className={classes['notes']}
      tabIndex={0}
      aria-label={t('notes', { count: notes.length })}
      data-testid="compare-notes"
    >
      {notes.map((note) => (
        <li key={note}>{note}</li>
      ))}
    </ul>
  )
}
